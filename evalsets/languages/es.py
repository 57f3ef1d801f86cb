"""Spanish."""

ITEMS = ("arroz", "tomate", "cebolla", "ajo", "pan", "queso", "limón", "aceite", "azúcar", "papel", "té", "jabón")
VALUES = {
    "person": ("Lucía Torres", "Mateo Ruiz", "Elena Navarro", "Javier Molina", "Carmen Ortega", "Andrés Vega",
               "Pilar Romero", "Tomás Herrera", "Inés Castillo", "Óscar Núñez", "Marta Peña", "Rubén Ibáñez"),
    "city": ("Sevilla", "Bogotá", "Lima", "Valencia", "Quito", "Montevideo", "Zaragoza", "Córdoba", "Asunción",
             "Granada", "Málaga", "Rosario"),
    "restaurant": ("Casa Pepe", "La Encina", "El Faro", "Los Olivos", "La Golondrina", "El Rincón"),
    "place": ("la estación central", "la plaza Mayor", "la biblioteca municipal", "la calle Nueva", "la playa"),
    "topic": ("historia", "astronomía", "jardinería", "música", "cocina", "arquitectura", "biología", "economía"),
    "message": ("llego tarde", "nos vemos mañana", "la reunión se cancela", "ya tengo las entradas", "feliz cumpleaños",
                "trae el paraguas"),
    "item": ITEMS,
}  # fmt: skip
DESCRIPTIONS = {
    "get_weather": "el tiempo en una ciudad", "send_message": "enviar un mensaje a una persona",
    "book_table": "reservar mesa en un restaurante", "set_alarm": "poner una alarma",
    "convert_money": "convertir dinero de una moneda a otra", "find_route": "buscar el camino entre dos ciudades",
    "track_order": "saber dónde está un pedido", "cancel_order": "cancelar un pedido",
    "find_book": "buscar libros sobre un tema", "find_hotel": "buscar un hotel por debajo de un precio",
    "call_taxi": "pedir un taxi", "add_contact": "guardar un contacto",
}  # fmt: skip
REQUESTS = {
    "get_weather": "¿Qué tiempo hace en {city}?[ Quiero la previsión de {days} días.]",
    "send_message": "Envía a {to} un mensaje con el texto «{text}».",
    "book_table": "Reserva en {restaurant} una mesa para {people} personas[ el día {date}].",
    "set_alarm": "Pon una alarma a las {time}.",
    "convert_money": "Convierte {amount} {source} a {target}.",
    "find_route": "¿Cómo llego de {start} a {goal}?",
    "track_order": "¿Dónde está mi pedido {order}?",
    "cancel_order": "Cancela el pedido {order}.",
    "find_book": "Busca libros sobre {topic}[ escritos por {author}].",
    "find_hotel": "Busca un hotel en {city} por menos de {price} euros por noche.",
    "call_taxi": "Pide un taxi para ir a {place}[ con {people} personas].",
    "add_contact": "Guarda el teléfono {phone} de {name} en mis contactos.",
}
NO_TOOL = "Ninguna herramienta sirve para esta petición."
EXTRACT = "Extrae estos datos como JSON y nada más; lo que no se diga es null:"
COMMA, AND, STOP = ", ", " y ", "."
NOTES = {
    "hotel": ("Reserva de hotel: ", "a nombre de @", "en @", "por @ noches", "desde el @",
              "con desayuno/sin desayuno"),
    "order": ("Pedido: ", "número @", "artículo @", "cantidad @", "total @ euros", "pagado/sin pagar"),
    "flight": ("Vuelo: ", "código @", "desde @", "con destino a @", "el día @", "con un retraso de @ minutos"),
    "meeting": ("Reunión: ", "sobre @", "convocada por @", "el día @", "en la sala @", "con @ asistentes",
                "por videollamada/en persona"),
    "recipe": ("Receta: ", "escrita por @", "con @", "lista en @ minutos", "para @ personas", "sin carne/con carne"),
    "package": ("Paquete: ", "código @", "enviado por @", "dirigido a @", "con un peso de @ gramos",
                "frágil/no frágil"),
    "course": ("Curso: ", "tema @", "impartido por @", "desde el @", "con @ plazas", "en línea/presencial"),
    "flat": ("Piso: ", "en @", "con @ habitaciones", "por @ euros al mes", "propiedad de @",
             "disponible/ya alquilado"),
}  # fmt: skip
